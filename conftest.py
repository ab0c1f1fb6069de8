"""Kernels that nbval starts talk over encrypted sockets, as the pipeline's do (`ltnb.notebooks.NotebookKernel`)."""

import functools

import nbval.kernel
from jupyter_client.manager import KernelManager

nbval.kernel.KernelManager = functools.partial(KernelManager, transport_encryption="required")
