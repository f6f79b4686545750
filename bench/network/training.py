"""Training steps of the 8.4 M MLP: one neighbor a step beside DDP with its best bucket size, precision by precision."""
import statistics

from arena import ENGINES, ddp_job, engines, our_job
from report import Figure, Times
from rounds import Contender, Spread, fastest, interleave, offered, ratio

NETWORK = "mlp"
PARAMETERS = 8 * (1024 * 1024 + 1024)
METHOD = "dsgd-awc one-peer-exponential"
BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}  # per element of a message
MOST_OVER_LIMIT = 1.1  # a step over max(compute, wire)

# (ours, DDP's precision) at (hosts, Mbit/s): the least speedup over DDP.
BARS = {
    ("float32", "float32"): {(4, 1000): 1.45, (8, 1000): 1.5, (4, 100): 1.45},
    ("bfloat16", "float32"): {(4, 1000): 2.2},
    ("bfloat16", "float16"): {(4, 100): 1.45},
    ("int8", "float16"): {(4, 100): 2.5},
}


def bar_of(pair, hosts, rate):
    if rate is None:  # must not be slower
        return 1.0 if pair == ("float32", "float32") else None
    return BARS[pair].get((hosts, rate))


def one_peer_contender(job, by_hand, message="float32"):
    what, more = ("steps", "") if by_hand else (METHOD, " eager=1")
    return Contender(f"{job.name} {message}", job, lambda count: f"{what} {count} message={message}{more}",
                     least_bytes=int(0.9 * BYTES[message] * PARAMETERS))


def alone_contender(job, by_hand):
    return Contender("alone", job, lambda count: f"alone {count}" if by_hand else f"alone - {count}")


def best_ddp(job, hosts, options, hook=""):
    precision, bytes_each = ("float16", 2) if hook else ("float32", 4)
    suffix = f" hook={hook}" if hook else ""
    # A ring sends 2 (n - 1) / n times the gradients, so at least once.
    return fastest([Contender(f"DDP {precision}, {bucket} MB", job,
                              lambda count, b=bucket: f"steps {count} bucket={b}{suffix}",
                              least_bytes=int(0.9 * bytes_each * PARAMETERS)) for bucket in options.buckets],
                   options.seconds, hosts)


def over_other_engines(hosts, options):
    """Our training with float32 through the engines other than c10d, and why some are left out."""
    if options.by_hand:
        return [], []
    found, notes = engines(options)
    return [one_peer_contender(our_job(hosts, NETWORK, engine=engine), by_hand=False)
            for engine in found if engine is not ENGINES["c10d"]], notes


def training(hosts, options):
    by_hand = options.by_hand
    ours = our_job(hosts, NETWORK, by_hand)
    ddp = ddp_job(hosts, NETWORK)
    able, notes = offered([one_peer_contender(ours, by_hand, message) for message in options.messages])
    mine = {message: one for message in BYTES for one in able if one.name.endswith(message)}
    others, missing = over_other_engines(hosts, options)
    theirs = {"float32": best_ddp(ddp, hosts, options),
              "float16": best_ddp(ddp, hosts, options, hook="fp16")}
    alone = alone_contender(ours, by_hand)
    interleave([alone, *mine.values(), *others, *theirs.values()], options.rounds, options.seconds, hosts)
    figures = []

    def figure(name, spread, one, **bar):
        figures.append(Figure("training", hosts.count, hosts.rate, name, spread, statistics.median(one.idle),
                              rounds=options.rounds, **bar))

    if hosts.rate is not None and "float32" in mine:
        wire = 32 * PARAMETERS / (1e6 * hosts.rate)
        limits = [max(compute, wire) for compute in alone.seconds]
        figure("a step / max(compute, wire)", Spread.of([a / b for a, b in zip(mine["float32"].seconds, limits)]),
               mine["float32"], at_most=MOST_OVER_LIMIT if (hosts.count, hosts.rate) == (4, 1000) else None)
    for own, peer in BARS:
        if own in mine:
            figure(f"{theirs[peer].name} / {own}", ratio(theirs[peer], mine[own]), mine[own],
                   at_least=bar_of((own, peer), hosts.count, hosts.rate))
    for other in others:
        if "float32" in mine:
            figure(f"{other.name} / {mine['float32'].name}", ratio(other, mine["float32"]), other)
        figure(f"{theirs['float32'].name} / {other.name}", ratio(theirs["float32"], other), other)
    # Curves show the best bucket size.
    times = [Times("training", hosts.count, hosts.rate, one.name.split(",")[0], one.middle(), statistics.median(one.idle))
             for one in [alone, *mine.values(), *others, *theirs.values()]]
    for job in [ours, ddp, *(other.job for other in others)]:
        job.end()
    return figures, times, [*notes, *missing]
