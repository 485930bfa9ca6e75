"""Whether AllReduce may become ReduceScatter + AllGather on your machines, and what that costs."""

__version__ = "0.1.0"
