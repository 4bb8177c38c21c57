"""The op contract on the user's torch, op by op: for GPUs that none of our code objects fits, and on a CPU for its tests."""
