"""Programs carried out on torch tensors: the only rooms, with the ranks and the library, that import torch."""
