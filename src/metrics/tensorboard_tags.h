// The tags under which TensorBoard shows a run's numbers.
#pragma once

namespace redline::metrics {

// Fixed by TensorBoard's plugins.
inline constexpr const char* kExperimentTag = "_hparams_/experiment";
inline constexpr const char* kSessionStartTag = "_hparams_/session_start_info";
inline constexpr const char* kSessionEndTag = "_hparams_/session_end_info";
inline constexpr const char* kLayoutTag = "custom_scalars__config__";

// The first tag of every evaluation: Loss/val, Loss/val_ema.
inline constexpr const char* kEvaluationPrefix = "Loss/val";

}  // namespace redline::metrics
