#!/usr/bin/env python3
"""Writes what PyTorch's AdamW, its gradient clipping and a written-out LAMB do to a few weights, step by step, for
optimizer_test.cpp to compare with.

    python tests/golden/make_optimizers.py            # writes optimizers.json beside this file

Everything is computed in float64. Gradients are a function of the weights and of the step, so that an error in one
step shows in all later ones.
"""

import json
import pathlib

import torch

STEPS = 6
RATE, BETAS, DECAY = 0.0625, (0.875, 0.96875), 0.125


class Lamb(torch.optim.Optimizer):
    """Large Batch Optimization for Deep Learning: Training BERT in 76 minutes (You et al., 2020), algorithm 2, with Adam's
    correction of moments that begin at zero."""

    def __init__(self, parameters, lr, betas, eps, weight_decay):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                state = self.state[w]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(w), exp_avg_sq=torch.zeros_like(w))
                state["step"] += 1
                (beta1, beta2), t = group["betas"], state["step"]
                state["exp_avg"] = beta1 * state["exp_avg"] + (1 - beta1) * w.grad
                state["exp_avg_sq"] = beta2 * state["exp_avg_sq"] + (1 - beta2) * w.grad**2
                mean, square = state["exp_avg"] / (1 - beta1**t), state["exp_avg_sq"] / (1 - beta2**t)
                update = mean / (square.sqrt() + group["eps"]) + group["weight_decay"] * w
                w -= group["lr"] * (w.norm() / update.norm()) * update


def gradient(w, step):
    return torch.sin(3 * w + step) * (1 + step)


def run(optimizer_of, clip):
    w = torch.tensor([0.5, -0.25, 1.5, 0.0, -2.0, 0.125], dtype=torch.float64, requires_grad=True)
    optimizer = optimizer_of([w])
    rows = []
    for step in range(STEPS):
        w.grad = gradient(w.detach(), step)
        row = {"gradient": w.grad.tolist()}
        row["norm"] = torch.nn.utils.clip_grad_norm_([w], clip).item() if clip else w.grad.norm().item()
        optimizer.step()
        state = optimizer.state[w]
        row.update(w=w.tolist(), m=state["exp_avg"].tolist(), v=state["exp_avg_sq"].tolist())
        rows.append(row)
    return rows


def main():
    options = {"lr": RATE, "betas": BETAS, "weight_decay": DECAY}
    cases = {
        "adamw": (lambda p: torch.optim.AdamW(p, eps=2**-20, **options), 0),
        "adamw_clipped": (lambda p: torch.optim.AdamW(p, eps=2**-20, **options), 2.0),
        "lamb": (lambda p: Lamb(p, eps=2**-20, **options), 0),
    }
    result = [{"case": name, "clip": clip, "steps": run(make, clip)} for name, (make, clip) in cases.items()]
    text = {"lr": RATE, "betas": BETAS, "epsilon": 2**-20, "weight_decay": DECAY, "cases": result}
    path = pathlib.Path(__file__).parent / "optimizers.json"
    path.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
