"""Muon for the matrices inside the blocks, AdamW for everything else, over fp32 master copies.

The model itself may be bf16 (fast on CPUs with AVX512-BF16 or AMX); masters, moments and updates are fp32.
Muon: Jordan et al. 2024, momentum orthogonalised by five Newton-Schulz steps.
"""

import torch


def orthogonalise(batch):
    """Newton-Schulz iteration on a stack of matrices [n, rows, columns] with rows <= columns."""
    x = batch / (batch.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(-1, -2)
        b = -4.7750 * a + 2.0315 * (a @ a)
        x = 3.4445 * x + b @ x
    return x


NOT_MATRICES = ("embeddings.weight", ".A_log", ".dt_proj.weight")  # two-dimensional, but not Muon's
NOT_DECAYED = ("embeddings.weight", ".A_log")


class Optimizer:
    """`matrix_lr` drives Muon and `other_lr` AdamW; with muon=False everything is AdamW at `other_lr`."""

    def __init__(self, model, matrix_lr, other_lr, muon=True, weight_decay=0.1, betas=(0.9, 0.95), momentum=0.95):
        self.matrix_lr, self.other_lr, self.decay = matrix_lr, other_lr, weight_decay
        self.betas, self.momentum, self.steps = betas, momentum, 0
        self.params = dict(model.named_parameters())
        self.master = {n: p.detach().float().clone() for n, p in self.params.items()}
        is_matrix = {n: muon and p.dim() == 2 and not n.endswith(NOT_MATRICES) for n, p in self.params.items()}
        self.matrices = [n for n in self.params if is_matrix[n]]
        self.others = [n for n in self.params if not is_matrix[n]]
        self.first = {n: torch.zeros_like(m) for n, m in self.master.items()}
        self.second = {n: torch.zeros_like(self.master[n]) for n in self.others}

    def zero_grad(self):
        for parameter in self.params.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self, scale, clip=1.0):
        """One update with both learning rates multiplied by `scale`; returns the gradient norm."""
        self.steps += 1
        grads = {n: p.grad.float() for n, p in self.params.items()}
        norm = torch.stack([g.norm() for g in grads.values()]).norm()
        factor = min(1.0, clip / (norm.item() + 1e-6))
        b1, b2 = self.betas
        for n in self.others:
            g, w = grads[n] * factor, self.master[n]
            self.first[n].lerp_(g, 1 - b1)
            self.second[n].lerp_(g * g, 1 - b2)
            update = self.first[n] / (1 - b1 ** self.steps)
            update /= (self.second[n] / (1 - b2 ** self.steps)).sqrt() + 1e-8
            lr = self.other_lr * scale
            if w.dim() == 2 and not n.endswith(NOT_DECAYED):
                w.mul_(1 - lr * self.decay)
            w.sub_(lr * update)
            self.params[n].copy_(w)
        shapes = {}
        for n in self.matrices:
            g = grads[n]
            self.first[n].lerp_(g, 1 - self.momentum)
            m = g.lerp(self.first[n], self.momentum)
            shapes.setdefault(tuple(sorted(m.shape)), []).append((n, m))
        for (short, long), group in shapes.items():
            stack = torch.stack([m if m.shape[0] <= m.shape[1] else m.t() for _, m in group])
            stack = orthogonalise(stack.bfloat16()).float() * 0.2 * long ** 0.5  # the RMS of an AdamW step
            lr = self.matrix_lr * scale
            for (n, m), update in zip(group, stack):
                w = self.master[n]
                w.mul_(1 - lr * self.decay).sub_(lr * (update if m.shape[0] <= m.shape[1] else update.t()))
                self.params[n].copy_(w)
        return norm.item()

    def state_dict(self):
        return {"steps": self.steps, "master": self.master, "first": self.first, "second": self.second}

    @torch.no_grad()
    def load_state_dict(self, state):
        self.steps, self.master, self.first, self.second = (state[k] for k in ("steps", "master", "first", "second"))
        for n, p in self.params.items():
            p.copy_(self.master[n])
