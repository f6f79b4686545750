"""Operations on blocks: the average with one neighbor, and the sum of all."""
import statistics

from arena import engines, operations_jobs
from report import Figure, Times
from rounds import Contender, Spread, interleave, ratio

LEAST_SHARE = 0.92  # of the link's nominal rate
LEAST_GAIN = {4: 1.45, 8: 1.7}  # all-reduce's time over ours; theory says 2 (n - 1) / n
MOST_OVER_HAND = 1.1


def contenders_of(jobs, elements, network, native=False):
    """The contenders by (owner, operation)."""
    found = {}
    for whose, job in jobs.items():
        for operation in ("one-peer", "all-reduce", *(["native-all-reduce"] if native and whose == "ours" else [])):
            found[whose, operation] = Contender(f"{job.name} {operation}", job,
                                                lambda count, o=operation: f"{o} {elements} {count}",
                                                least_bytes=int(0.9 * 4 * elements) if network else 0)
    return found


def over(engine, hosts, options):
    """Figures and times of one engine on the shaped network."""
    jobs = operations_jobs(engine, hosts, options.by_hand)
    native = engine.native and not options.by_hand
    figures, times = [], []
    for millions in options.blocks:
        elements = int(millions * 1e6)
        all_of = contenders_of(jobs, elements, True, native)
        interleave(list(all_of.values()), options.rounds, options.seconds, hosts)
        ours, theirs = all_of["ours", "one-peer"], all_of["peer", "all-reduce"]
        idle = statistics.median(ours.idle)

        def figure(name, spread, **bar):
            figures.append(Figure("operations", hosts.count, hosts.rate, f"{millions:g} M floats{engine.over}: {name}", spread,
                                  idle, rounds=options.rounds, **bar))

        if hosts.rate is not None:
            wire = 32 * elements / (1e6 * hosts.rate)
            figure("one-peer, share of the link", Spread.of([wire / one for one in ours.seconds]), at_least=LEAST_SHARE)
        figure(f"{engine.all_reduce} / one-peer", ratio(theirs, ours),
               at_least=LEAST_GAIN.get(hosts.count) if hosts.rate is not None else None)
        figure(f"one-peer by hand on {engine.peer} / one-peer", ratio(all_of["peer", "one-peer"], ours))
        figure(f"{engine.all_reduce} / our all-reduce", ratio(theirs, all_of["ours", "all-reduce"]))
        if native:
            figure(f"{engine.all_reduce} / our all-reduce left to it", ratio(theirs, all_of["ours", "native-all-reduce"]))
        times += [Times(f"operations, {millions:g} M floats", hosts.count, hosts.rate, one.name, one.middle(),
                        statistics.median(one.idle)) for one in all_of.values()]
    for job in jobs.values():
        job.end()
    return figures, times


def operations(hosts, options):
    """Operations on the shaped network."""
    found, notes = engines(options)
    figures, times = [], []
    for engine in found:  # one after another, because ranks that wait in MPI poll all the time
        for all_of, new in zip((figures, times), over(engine, hosts, options)):
            all_of += new
    return figures, times, notes


def loopback(hosts, options):
    """Four ranks on one host: the cost of our operations through an engine, beside the same written directly on it."""
    found, notes = engines(options)
    figures = []
    for engine in found:
        jobs = operations_jobs(engine, hosts, options.by_hand, ranks=4)
        for millions in options.blocks:
            all_of = contenders_of(jobs, int(millions * 1e6), network=False)
            pair = [all_of["ours", "one-peer"], all_of["peer", "one-peer"]]
            interleave(pair, options.rounds, options.seconds, hosts)
            name = f"{millions:g} M floats, 4 ranks: one-peer / by hand on {engine.peer}"
            figures.append(Figure("loopback", 1, None, name, ratio(*pair), statistics.median(pair[0].idle),
                                  at_most=MOST_OVER_HAND, rounds=options.rounds))
        for job in jobs.values():
            job.end()
    return figures, [], notes
