"""Smooth DTW as the equations read, a cell at a time: what every kernel is held against."""

import math

import torch
from torch import Tensor


def table(c: Tensor, gamma: float) -> Tensor:
    """R of eq:sdtw_forward with eq:smoothmin written out; autograd differentiates it."""
    R: dict[tuple[int, int], Tensor] = {}
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            before = [R[p] for p in ((i - 1, j - 1), (i - 1, j), (i, j - 1)) if p in R]
            R[i, j] = c[i, j] + smooth_min(before, gamma) if before else c[i, j]
    return torch.stack([torch.stack([R[i, j] for j in range(c.shape[1])]) for i in range(c.shape[0])])


def smooth_min(values: list[Tensor], gamma: float) -> Tensor:
    a = torch.stack(values)
    e = torch.exp(-(a - a.min().detach()) / gamma)
    return (a * e).sum() / e.sum()


def beta(c: Tensor, gamma: float, own: float = 1.0) -> Tensor:
    """eq:sdtw_beta from R + E - own c."""
    E = table(c.flip(0, 1), gamma).flip(0, 1)
    return torch.softmax(-(table(c, gamma) + E - own * c) / gamma, 1)


def plain_table(c: list[list[float]], gamma: float) -> list[list[float]]:
    """The same in Python floats: quick enough for tall tables."""
    R: list[list[float]] = []
    for i, row in enumerate(c):
        R.append([])
        for j, own in enumerate(row):
            near = [R[x][y] for x, y in ((i - 1, j - 1), (i - 1, j), (i, j - 1)) if x >= 0 and y >= 0]
            least = min(near, default=0.0)
            e = [math.exp(-(a - least) / gamma) for a in near]
            R[i].append(own + (sum(a * p for a, p in zip(near, e, strict=True)) / sum(e) if near else 0.0))
    return R


def hard_path(c: list[list[float]]) -> tuple[float, int]:
    """Cost of the cheapest monotone path and its number of cells."""
    R: list[list[tuple[float, int]]] = []
    for i, row in enumerate(c):
        R.append([])
        for j, own in enumerate(row):
            near = [R[x][y] for x, y in ((i - 1, j - 1), (i - 1, j), (i, j - 1)) if x >= 0 and y >= 0]
            least, cells = min(near, default=(0.0, 0))
            R[i].append((least + own, cells + 1))
    return R[-1][-1]
