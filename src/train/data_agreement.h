// Whether the ranks of a job see the same data set, each on its own machine.
#pragma once

#include "train/ranks.h"
#include "train/setup.h"

namespace redline::train {

// Throws UsageError if the ranks' classes or samples differ: they would silently train on wrong labels.
void agree_on_data(Ranks& ranks, const Setup& setup);

}  // namespace redline::train
