"""Recurrent PPO on a task of memory, with one call of an LSTM for all steps of a rollout.

    python examples/recurrent_ppo/recurrent_ppo.py             less than a minute on 2 CPU cores
    python examples/recurrent_ppo/recurrent_ppo.py --help

At the first step of an episode the agent sees a symbol, then nothing for some steps; at the last
step it is asked for the symbol. Episodes have different lengths, and rollouts begin and end within
them. So the agent's state must be reset inside a rollout, before each step that starts an episode.

Programs like CleanRL's call torch's LSTM for each step of a rollout, and multiply its state by
``1 - start``. Here one call of the layer takes ``reset=starts``. Each update computes one minibatch
in both ways; the loss and its gradients must be the same. The program prints how often the agent
recalls the symbol, and both times.
Source of the algorithm: J. Schulman et al., "Proximal Policy Optimization Algorithms" (2017).
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from tqdm import tqdm

import lltm_jit

State = tuple[Tensor, Tensor]
GAMMA, LAMBDA, CLIP, OF_VALUES, OF_ENTROPY, MOST_NORM = 0.99, 0.95, 0.2, 0.5, 0.01, 0.5


class Recall:
    """Many episodes at once, each of a symbol, a delay, and a question."""

    def __init__(self, count: int, symbols: int, delays: tuple[int, int], device: torch.device):
        self.count, self.symbols, self.delays, self.device = count, symbols, delays, device
        self.symbol, self.left = self._drawn(symbols), self._drawn(delays[1])
        self.starts = torch.ones(count, dtype=torch.bool, device=device)

    def _drawn(self, end: int, begin: int = 0) -> Tensor:
        return torch.randint(begin, end, (self.count,), device=self.device)

    def observe(self) -> Tensor:
        """The symbol where an episode starts, and whether it is asked for."""
        shown = nn.functional.one_hot(self.symbol, self.symbols) * self.starts.unsqueeze(1)
        return torch.cat([shown, (self.left == 0).unsqueeze(1)], 1).float()

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """The rewards, and where an episode has ended; the next one has started there."""
        ends = self.left == 0
        reward = (ends & (action == self.symbol)).float()
        first, last = self.delays
        self.symbol = torch.where(ends, self._drawn(self.symbols), self.symbol)
        self.left = torch.where(ends, self._drawn(last + 1, first), self.left - 1)
        self.starts = ends
        return reward, ends


class Agent(nn.Module):
    """A policy and the value of a state; both ways of calling its LSTM have the same weights."""

    def __init__(self, symbols: int, size: int):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(symbols + 1, size), nn.Tanh())
        self.lstm = lltm_jit.LSTM(size, size)
        self.actor, self.critic = nn.Linear(size, symbols), nn.Linear(size, 1)

    def start(self, count: int, device: torch.device) -> State:
        zeros = torch.zeros(1, count, self.lstm.hidden_size, device=device)
        return zeros, zeros

    def remember(self, x: Tensor, state: State, starts: Tensor) -> tuple[Tensor, State]:
        """One call."""
        return self.lstm(self.encoder(x), state, reset=starts)

    def heads(self, h: Tensor) -> tuple[Categorical, Tensor]:
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)

    def forward(self, x: Tensor, state: State, starts: Tensor) -> tuple[Categorical, Tensor, State]:
        h, state = self.remember(x, state, starts)
        return *self.heads(h), state


class LoopingAgent(Agent):
    """The same agent with torch's LSTM, which is called for each step."""

    def __init__(self, agent: Agent):
        nn.Module.__init__(self)
        self.encoder, self.actor, self.critic = agent.encoder, agent.actor, agent.critic
        self.lstm = nn.LSTM(agent.lstm.input_size, agent.lstm.hidden_size)
        for name, weight in agent.lstm.named_parameters():
            setattr(self.lstm, name, weight)

    def remember(self, x: Tensor, state: State, starts: Tensor) -> tuple[Tensor, State]:
        (h, c), outputs = state, []
        for features, start in zip(self.encoder(x), starts, strict=True):
            kept = (1.0 - start.float()).view(1, -1, 1)
            output, (h, c) = self.lstm(features.unsqueeze(0), (h * kept, c * kept))
            outputs.append(output)
        return torch.cat(outputs), (h, c)


@dataclass
class Rollout:
    """Steps of all episodes, (steps, episodes, ...), and the state before the first step."""

    state: State
    observations: Tensor
    starts: Tensor
    actions: Tensor
    log_probabilities: Tensor
    advantages: Tensor
    returns: Tensor

    def of_rows(self, rows: Tensor) -> Rollout:
        """A minibatch: whole sequences."""
        steps = {name: value[:, rows] for name, value in vars(self).items() if name != "state"}
        h, c = self.state
        return Rollout((h[:, rows], c[:, rows]), **steps)


@torch.no_grad()
def roll_out(agent: Agent, game: Recall, state: State, steps: int) -> tuple[Rollout, State, float]:
    """Let the agent act; also how many of the questions it answered rightly."""
    kept: dict[str, list[Tensor]] = {}
    before = state
    for _ in range(steps):
        x, starts = game.observe(), game.starts
        policy, values, state = agent(x.unsqueeze(0), state, starts.unsqueeze(0))
        actions = policy.sample()
        rewards, ends = game.step(actions.squeeze(0))
        step = {"x": x, "starts": starts, "actions": actions.squeeze(0), "rewards": rewards}
        step |= {"ends": ends, "values": values.squeeze(0)}
        step["log_probabilities"] = policy.log_prob(actions).squeeze(0)
        for name, value in step.items():
            kept.setdefault(name, []).append(value)
    all_steps = {name: torch.stack(values) for name, values in kept.items()}
    _, after, _ = agent(game.observe().unsqueeze(0), state, game.starts.unsqueeze(0))
    rewards, ends, values = (all_steps[name] for name in ("rewards", "ends", "values"))
    following = torch.cat([values[1:], after]).masked_fill(ends, 0)
    errors = rewards + GAMMA * following - values
    advantages, advantage = torch.zeros_like(values), torch.zeros_like(values[0])
    for t in reversed(range(steps)):
        advantage = errors[t] + GAMMA * LAMBDA * advantage.masked_fill(ends[t], 0)
        advantages[t] = advantage
    rollout = Rollout(
        before,
        *(all_steps[name] for name in ("x", "starts", "actions", "log_probabilities")),
        advantages,
        advantages + values,
    )
    return rollout, state, (rewards.sum() / ends.sum()).item()


def loss_of(agent: Agent, batch: Rollout) -> Tensor:
    policy, values, _ = agent(batch.observations, batch.state, batch.starts)
    ratio = (policy.log_prob(batch.actions) - batch.log_probabilities).exp()
    advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
    clipped = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
    of_values = (values - batch.returns).square().mean()
    return OF_VALUES * of_values - clipped.mean() - OF_ENTROPY * policy.entropy().mean()


def timed_gradients(agent: Agent, batch: Rollout, weights: list[Tensor]) -> tuple[list, float]:
    """The loss and its gradients, and the milliseconds that they took."""
    wait = torch.cuda.synchronize if batch.actions.is_cuda else lambda: None
    wait()
    begin = time.perf_counter()
    loss = loss_of(agent, batch)
    gradients = torch.autograd.grad(loss, weights)
    wait()
    return [loss.detach(), *gradients], 1e3 * (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description="Recurrent PPO on a task of memory.")
    add = parser.add_argument
    add("--updates", type=int, default=30, help="number of rollouts to learn from")
    add("--episodes", type=int, default=64, help="episodes played at the same time")
    add("--steps", type=int, default=64, help="steps of a rollout")
    add("--symbols", type=int, default=4)
    add("--longest-delay", type=int, default=10, help="steps from symbol to question")
    add("--hidden-size", type=int, default=64)
    add("--epochs", type=int, default=4)
    add("--minibatches", type=int, default=4)
    add("--learning-rate", type=float, default=3e-3)
    add("--seed", type=int, default=1)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    game = Recall(args.episodes, args.symbols, (1, args.longest_delay), device)
    agent = Agent(args.symbols, args.hidden_size).to(device)
    looping, weights = LoopingAgent(agent), list(agent.parameters())
    optimizer = torch.optim.Adam(weights, args.learning_rate)
    state, right = agent.start(args.episodes, device), 0.0
    calls: list[float] = []
    loops: list[float] = []
    allowed = 1e-5 if device.type == "cpu" else 2e-3  # where products are rounded to TF32
    for _ in tqdm(range(args.updates), desc="training", unit="update", disable=None):
        rollout, state, right = roll_out(agent, game, state, args.steps)
        batch = rollout.of_rows(torch.arange(args.episodes // args.minibatches, device=device))
        found, of_call = timed_gradients(agent, batch, weights)
        expected, of_loop = timed_gradients(looping, batch, weights)
        calls.append(of_call)
        loops.append(of_loop)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=allowed)
        for _ in range(args.epochs):
            for rows in torch.randperm(args.episodes, device=device).chunk(args.minibatches):
                optimizer.zero_grad()
                loss_of(agent, rollout.of_rows(rows)).backward()
                nn.utils.clip_grad_norm_(weights, MOST_NORM)
                optimizer.step()
    call, loop = statistics.median(calls), statistics.median(loops)
    print(f"symbols recalled: {right:.0%}, by chance {1 / args.symbols:.0%}")
    print(f"loss and gradients of a minibatch: {loop:.2f} ms step by step, {call:.2f} in one call")
    print(f"one call is {loop / call:.1f} times as fast, with the same numbers")


if __name__ == "__main__":
    main()
