"""What the live tests of PyTorch profile; imported in the child processes."""


def _job(module, loss, size=30):
    """Trains on one batch; importing an optimizer takes seconds."""

    def train(module):
        module.zero_grad()
        loss(module).backward()
        return size

    return module, train


def small(size=30):
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.Linear(400, 3))
    return _job(module, lambda module: module(torch.rand(30, 300)).square().mean(), size)


def no_count():
    return small(None)


def no_step():
    return small()[0]


def wrapped():
    import torch

    module, step = small()
    return torch.nn.parallel.DistributedDataParallel(module), step


def grouped():
    import torch

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    return wrapped()


LENGTH, NOISE = 100, 2.0

#: Of `regression`: of one example, E |a|^2 (a e - noise)^2 - |e|^2 over |e|^2, where e is as long as 1.
NOISE_SCALE = LENGTH + 1 + LENGTH * NOISE**2


def regression():
    """Least squares at a fixed point, a distance of 1 from the truth, on fresh examples in each step."""
    import torch

    assert not torch.distributed.is_initialized()  # or what waits for other ranks would wait for ever
    module = torch.nn.Linear(LENGTH, 1, bias=False)
    torch.nn.init.constant_(module.weight, LENGTH**-0.5)

    def loss(module):
        missed = module(torch.randn(30, LENGTH))[:, 0] - NOISE * torch.randn(30)
        return missed.square().mean() / 2

    return _job(module, loss)


def same_examples():
    """Every rank has the same ones; one parameter is of no use to the loss."""
    import torch

    examples, (module, _) = torch.rand(30, 300), small()
    module.register_parameter("unused", torch.nn.Parameter(torch.rand(5)))
    return _job(module, lambda module: module(examples).square().mean())
