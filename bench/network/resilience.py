"""The cost of late and dead hosts."""
import statistics
import time

from arena import ddp_job, gloo_job, our_job
from hosts import Idle
from job import Failed
from report import Figure, Times
from rounds import Contender, Spread, interleave, say
from training import METHOD, NETWORK, PARAMETERS, best_ddp, one_peer_contender

LATE_MS, PERIOD = 100, 3
MOST_LOSS = 0.5  # relative to all-reduce's loss
MOST_STALL = 1.0  # seconds


def late_lines(lines, hosts):
    """Two hosts are late, in different steps, as real delays do not coincide."""
    stragglers = {0: 0, hosts.count // 2: 1}
    return [f"{line} late={LATE_MS},{PERIOD},{stragglers[host]}" if host in stragglers else line
            for host, line in enumerate([lines] * hosts.count)]


def with_stragglers(contender, hosts):
    return Contender(f"{contender.name}, stragglers", contender.job, lambda count: late_lines(contender.line(count), hosts),
                     contender.least_bytes, PERIOD)


def stragglers(hosts, options):
    ours = our_job(hosts, NETWORK, options.by_hand)
    ddp = ddp_job(hosts, NETWORK)
    mine, theirs = one_peer_contender(ours, options.by_hand), best_ddp(ddp, hosts, options)
    mine.multiple = theirs.multiple = PERIOD
    all_of = [mine, with_stragglers(mine, hosts), theirs, with_stragglers(theirs, hosts)]
    if not options.by_hand:
        own = Contender("starling all-reduce", ours, lambda count: f"allreduce - {count}",
                        least_bytes=int(0.9 * 4 * PARAMETERS), multiple=PERIOD)
        all_of += [own, with_stragglers(own, hosts)]
    interleave(all_of, options.rounds, options.seconds, hosts)
    losses = [[late - usual for late, usual in zip(stumbling.seconds, steady.seconds)]
              for steady, stumbling in zip(all_of[::2], all_of[1::2])]
    idle = statistics.median(all_of[1].idle)
    # Differences of medians, because a single round's loss may be almost zero.
    figures = []
    for peer, loss in zip([theirs.name, "our own all-reduce"], losses[1:]):
        middle = statistics.median(loss)
        name = f"what one-peer loses / what {peer} loses ({1e3 * middle:.0f} ms a step)"
        figures.append(Figure("stragglers", hosts.count, hosts.rate, name, Spread.of([one / middle for one in losses[0]]),
                              idle, at_most=MOST_LOSS, rounds=options.rounds))
    times = [Times("stragglers", hosts.count, hosts.rate, one.name, one.middle(), statistics.median(one.idle))
             for one in all_of]
    for job in (ours, ddp):
        job.end()
    return figures, times, []


def detection_of_gloo(hosts):
    """Seconds from SIGKILL of a rank until the last rank that waits for its message learns that it is lost."""
    job, victim = gloo_job(hosts), hosts.count - 1
    job.ask("one-peer 1000 1")
    for rank in range(victim):
        job.tell(rank, f"lose {victim}")
    time.sleep(0.5)
    began = time.clock_gettime(time.CLOCK_MONOTONIC)
    job.processes[victim].kill()
    seen = max(float(job.answer(rank, 120)[0]) for rank in range(victim)) - began
    job.end()
    return seen


def longest_stall(hosts, usual, moment):
    """The longest that a survivor went without ending a step after the SIGKILL, less a usual step. `moment`: where in a step
    it strikes, from 0 to 1, for a message that is under way is another case than none."""
    job, victim = our_job(hosts, NETWORK), hosts.count - 1
    steps = max(20, round(8.0 / usual))
    line = f"{METHOD} {{}} on_peer_failure=reweight marks=1"
    job.ask(line.format(2))
    for rank in range(hosts.count):
        job.tell(rank, line.format(steps))
    time.sleep((3 + moment) * usual)
    began = time.clock_gettime(time.CLOCK_MONOTONIC)
    job.processes[victim].kill()
    worst = 0.0
    for rank in range(victim):
        marks = [float(word) for word in job.answer(rank, 60 + 5 * steps * usual)[2:]]
        after = [mark for mark in marks if mark > began]
        if len(marks) != steps or len(after) < 5:
            raise Failed(f"rank {rank} took {len(marks)} steps of {steps}, {len(after)} after the SIGKILL: too few to judge")
        worst = max(worst, *(b - a for a, b in zip([began, *after], after)))
    job.end()
    return max(0.0, worst - usual)


def kill(hosts, options):
    """SIGKILL of one host's rank: how long the others are blocked, beside gloo's own detection."""
    figures = []

    def figure(name, seconds, idle, **bar):
        figures.append(Figure("kill", hosts.count, hosts.rate, name, Spread.of(seconds), idle, rounds=options.rounds,
                              **bar))

    with Idle() as idle:
        seen = []
        for number in range(options.rounds):
            say(f"gloo's detection {number + 1} of {options.rounds}")
            seen.append(detection_of_gloo(hosts))
    say("")
    figure("gloo's own detection, s", seen, idle.share)
    if options.by_hand:  # nothing survives in these jobs
        return figures, [], []
    job = our_job(hosts, NETWORK)
    usual = job.seconds(f"{METHOD} 4 on_peer_failure=reweight") / 4
    job.end()
    with Idle() as idle:
        beyond = []
        for number, detection in enumerate(seen):
            say(f"kill {number + 1} of {options.rounds}")
            beyond.append(longest_stall(hosts, usual, number / options.rounds) - detection)
    say("")
    figure("survivors' next step after it, s", beyond, idle.share, at_most=MOST_STALL)
    return figures, [], []
