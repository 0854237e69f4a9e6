"""What the live tests of PyTorch profile; imported in the child processes."""


def _job(step):
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.Linear(400, 3))

    def train(module):
        module.zero_grad()
        module(torch.rand(30, 300)).square().mean().backward()  # importing an optimizer takes seconds
        return step()

    return module, train


def small():
    return _job(lambda: 30)


def no_count():
    return _job(lambda: None)


def raises():
    raise KeyError("train.csv")


def no_step():
    return small()[0]
