"""Every rank trains on a GPU of its host, or on the CPU where there is none. Models, averages and updates stay on the
GPU (docs/gpu.md); ranks may share one.

    starling run -n 4 python examples/gpu_training.py
"""

import torch

import starling.torch as bf

bf.init()
gpus = torch.cuda.device_count()
device = torch.device("cuda", bf.local_rank() % gpus) if gpus else torch.device("cpu")

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).to(device)
optimizer = bf.decentralize(model, torch.optim.AdamW(model.parameters(), lr=0.01))

torch.manual_seed(100 + bf.rank())  # every rank has its own data
for step in range(300):
    x = torch.randn(64, 16, device=device)
    y = x.sum(1, keepdim=True)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()

mean = bf.allreduce(loss.detach())  # a tensor on the GPU, averaged there
distance = optimizer.consensus_distance()
if bf.rank() == 0:
    print(f"trained on {device}: mean loss {mean.item():.4f}, distance between the models {distance:.4f}")
assert mean.item() < 1
