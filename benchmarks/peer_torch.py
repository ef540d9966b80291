"""ResNet training with PyTorch on a CPU, timed: the peer of cpu_training.py. Prints one JSON object.

Random images, channels_last, SGD with momentum and weight decay, label smoothing 0.1: what `redline train synthetic`
does. bf16 is autocast, as PyTorch's users have it. Threads: the fastest of a few counts, tried first.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torchvision


def storage_of(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()  # PyTorch 1


def saved_bytes(model, images, labels):
    """Bytes that autograd keeps for the backward pass, parameters and buffers not counted."""
    own = {storage_of(t).data_ptr() for t in (*model.parameters(), *model.buffers())}
    kept = {}

    def note(tensor):
        storage = storage_of(tensor)
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = torch.nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        total = sum(kept.values())
    loss.backward()
    return total


def make_model(name):
    """torchvision's; timm's where torchvision has none of that name."""
    if hasattr(torchvision.models, name):
        return getattr(torchvision.models, name)()
    import timm
    return timm.create_model(name)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--model", default="resnet50")
    options.add_argument("--batch", type=int, required=True)
    options.add_argument("--size", type=int, required=True)
    options.add_argument("--dtype", choices=["fp32", "bf16"], required=True)
    options.add_argument("--steps", type=int, default=5)
    options.add_argument("--cpu-time", action="store_true", help="one thread, and seconds of CPU time")
    options.add_argument("--memory", action="store_true", help="measure activation memory instead of time")
    args = options.parse_args()

    torch.manual_seed(0)
    model = make_model(args.model).to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(args.batch, 3, args.size, args.size).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (args.batch,))
    loss_function = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

    if args.memory:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
            print(json.dumps({"activation_bytes": saved_bytes(model, images, labels)}))
        return

    clock = time.process_time if args.cpu_time else time.perf_counter

    def step():
        begin = clock()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = loss_function(model(images), labels)
        loss.backward()
        optimizer.step()
        return clock() - begin

    cores = 1 if args.cpu_time else len(os.sched_getaffinity(0))
    torch.set_num_threads(cores)
    times = {}
    step()  # the first step also allocates and compiles kernels
    for threads in sorted({cores, max(1, cores // 2)}, reverse=True):
        torch.set_num_threads(threads)
        times[threads] = min(step() for _ in range(3))  # a disturbed step must not decide
    best_threads = min(times, key=times.get)
    torch.set_num_threads(best_threads)
    step()
    seconds = statistics.median(step() for _ in range(args.steps))
    print(json.dumps({"images_per_second": args.batch / seconds, "threads": best_threads,
                      "torch": torch.__version__, "torchvision": torchvision.__version__}))


if __name__ == "__main__":
    main()
