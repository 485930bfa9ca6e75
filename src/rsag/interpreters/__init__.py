"""Readers of programs: symbols, order, exact numbers, ledger, words, emit. None of them knows torch."""
