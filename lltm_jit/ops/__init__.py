"""The operators, a package for each family: schema, reference, function and ``torch.nn.Module``."""
