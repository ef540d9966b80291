"""ResNet training with PyTorch on a GPU, timed on request: the peer of gpu_training.py.

Stays alive between measurements, so that compiling and tuning are paid once: reads lines of JSON and answers each with
one.
    {"do": "time", "steps": 50}                     -> {"images_per_second": ..., "peak_bytes": ...}
    {"do": "curve", "images": file, ...}            -> {"losses": [...]}
Random images that stay on the device, channels_last, autocast, SGD with momentum and weight decay, label smoothing 0.1,
dynamic loss scaling in fp16, cuDNN's own search for kernels: what PyTorch's users are told to do.
"""
import argparse
import json
import sys
import time

import torch
import torchvision

from peer_torch import make_model

TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


class Training:
    def __init__(self, args, model):
        self.model = model.cuda().to(memory_format=torch.channels_last).train()
        modes = {"eager": lambda model: model, "compile": torch.compile,
                 "graphs": lambda model: torch.compile(model, mode="reduce-overhead")}
        self.run = modes[args.how](self.model)
        decayed = [p for p in self.model.parameters() if p.ndim > 1]
        spared = [p for p in self.model.parameters() if p.ndim <= 1]
        self.optimizer = torch.optim.SGD([{"params": decayed, "weight_decay": 1e-4}, {"params": spared}], lr=args.lr,
                                         momentum=0.9, foreach=True)
        self.dtype = TYPES[args.dtype]
        self.scaler = torch.amp.GradScaler("cuda", enabled=args.dtype == "fp16")
        self.loss = torch.nn.CrossEntropyLoss(label_smoothing=args.smoothing)

    def step(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=self.dtype, enabled=self.dtype != torch.float32):
            loss = self.loss(self.run(images), labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()


def time_steps(training, images, labels, steps):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        training.step(images, labels)
    torch.cuda.synchronize()
    return len(labels) * steps / (time.perf_counter() - begin)


def serve_times(args):
    training = Training(args, make_model(args.model))
    images = torch.randn(args.batch, 3, args.size, args.size, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (args.batch,), device="cuda")
    time_steps(training, images, labels, 12)  # compiles, tunes and warms up
    print(json.dumps({"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "cuda": torch.version.cuda,
                      "gpu": torch.cuda.get_device_name()}), flush=True)
    for line in sys.stdin:
        torch.cuda.reset_peak_memory_stats()
        speed = time_steps(training, images, labels, json.loads(line)["steps"])
        print(json.dumps({"images_per_second": speed, "peak_bytes": torch.cuda.max_memory_reserved()}), flush=True)


def serve_curves(args):
    """Each line names tensors on disk: initial weights, u8 images [N,H,W,3], labels, and the order of samples."""
    mean = torch.tensor([0.485, 0.456, 0.406], device="cuda").view(1, 3, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225], device="cuda").view(1, 3, 1, 1)
    for line in sys.stdin:
        job = json.loads(line)
        model = getattr(torchvision.models, args.model)(num_classes=job["classes"])
        model.load_state_dict(torch.load(job["weights"]))
        data = torch.load(job["data"])
        training = Training(args, model)
        losses = []
        for batch in job["batches"]:
            images = data["images"][batch].cuda().permute(0, 3, 1, 2).float().div(255).sub(mean).div(deviation)
            losses.append(training.step(images.to(memory_format=torch.channels_last), data["labels"][batch].cuda()))
        print(json.dumps({"losses": torch.stack(losses).tolist()}), flush=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--model", default="resnet50")
    options.add_argument("--batch", type=int, default=0)
    options.add_argument("--size", type=int, default=224)
    options.add_argument("--dtype", choices=TYPES, required=True)
    options.add_argument("--how", choices=("eager", "compile", "graphs"), default="eager")
    options.add_argument("--lr", type=float, default=0.01)
    options.add_argument("--smoothing", type=float, default=0.1)
    args = options.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    if args.batch > 0:
        serve_times(args)
    else:
        serve_curves(args)


if __name__ == "__main__":
    main()
