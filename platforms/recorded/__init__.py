"""What platforms share that record a model as a program of kernel calls over planned memory, on CPUs and GPUs."""
