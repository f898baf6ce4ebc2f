"""One thread for torch in the test process: the models are tiny, and its workers need the cores."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
