"""The rank program: the only code that runs where it is measured. Torch and the standard library, nothing else."""
