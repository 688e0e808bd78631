"""The operators, one module each: schema, reference, function and ``torch.nn.Module``."""
