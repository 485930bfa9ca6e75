"""Which tensors a collective may see, and as what."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rsag.carriers.tensors import flatten
from rsag.errors import UnsupportedError


def numbers() -> Tensor:
    return torch.arange(24)


@pytest.mark.parametrize("shape", [(), (24,), (4, 6), (2, 3, 4), (0,), (0, 5)])
def test_contiguous_tensors_are_seen_in_place(shape: tuple[int, ...]) -> None:
    tensor = torch.zeros(shape)
    flat = flatten(tensor)
    assert (False, (tensor.numel(),)) == (flat.copied, tuple(flat.tensor.shape))
    assert tensor.data_ptr() == flat.tensor.data_ptr()
    flat.tensor.fill_(7)
    assert tensor.tolist() == torch.full(shape, 7.0).tolist()


@pytest.mark.parametrize(
    "tensor",
    [numbers().view(12, 2)[:, 1], numbers().view(4, 6).t(), numbers().view(2, 3, 4).permute(2, 0, 1), numbers()[::3]],
    ids=["column", "transposed", "permuted", "strided"],
)
def test_others_are_copied_and_copied_back(tensor: Tensor) -> None:
    flat = flatten(tensor)
    assert (True, tensor.reshape(-1).tolist()) == (flat.copied, flat.tensor.tolist())
    flat.tensor.neg_()
    expected = tensor.neg().tolist()
    flat.copy_back(tensor)
    assert expected == tensor.tolist()


def test_what_lies_between_the_elements_is_left_alone() -> None:
    base = numbers()
    column = base.view(12, 2)[:, 0]
    flat = flatten(column)
    flat.tensor.zero_()
    flat.copy_back(column)
    assert base.tolist() == [0 if element % 2 == 0 else element for element in range(24)]


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.zeros(1).expand(4), r"several elements .* strides \(0,\)"),
        (torch.zeros(3, 1).expand(3, 2), r"several elements .* strides \(1, 0\)"),
        (numbers().as_strided((3, 4), (2, 1)), r"several elements .* strides \(2, 1\)"),
        (torch.zeros(4, requires_grad=True), "requires grad"),
        (torch.zeros(4, dtype=torch.float8_e4m3fn), "float8_e4m3fn"),
        (torch.zeros(4).to_sparse(), "not a dense tensor; got torch.sparse_coo"),
    ],
    ids=["expanded", "expanded-2d", "overlapping", "requires-grad", "float8", "sparse"],
)
def test_what_no_copy_can_mend_is_refused(tensor: Tensor, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        flatten(tensor)


def test_a_parameter_is_taken_where_no_gradient_is_recorded() -> None:
    parameter = torch.zeros(4, requires_grad=True)
    with torch.no_grad():
        assert flatten(parameter).tensor.data_ptr() == parameter.data_ptr()


def test_an_expanded_dimension_of_one_shares_nothing() -> None:
    assert flatten(torch.zeros(1, 4).expand(1, 4)).copied is False
