"""One thread: the tests' tensors are small, and two threads on a busy machine mostly wait for each other."""

import torch

torch.set_num_threads(1)
