"""From records to judgement, purely: the same on another machine, without torch, on another day."""
