"""Decisions that wait for a reward, of many streams, in arrays: a pool of places, a hash table from ids to places, and
for every stream the chain of its places from the oldest to the newest.

`heads` (B, 3) holds of every stream its oldest place, its newest and how many wait; `links` (P, 2) of every place the
one before and the one after it in its stream. NONE stands for no place. The table is open-addressed with linear
probing, its size a power of 2 and at least twice the places; what is removed leaves no gap in a run.
"""

from __future__ import annotations

import numpy as np

from halfseen.kernels.compiling import kernel

NONE = -1
FOUND, UNKNOWN, TWICE = 0, 1, 2
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio


@kernel()
def _home(number, table):  # type: ignore[no-untyped-def]
    mixed = np.uint64(number) * _SPREAD
    return np.int64((mixed >> np.uint64(32)) & np.uint64(table.shape[0] - 1))


@kernel()
def _enter(place, ids, table):  # type: ignore[no-untyped-def]
    at = _home(ids[place], table)
    while table[at] != NONE:
        at = (at + 1) & (table.shape[0] - 1)
    table[at] = place


@kernel()
def _cell(number, ids, table):  # type: ignore[no-untyped-def]
    """Where in the table a decision is, or NONE."""
    at = _home(number, table)
    while table[at] != NONE:
        if ids[table[at]] == number:
            return at
        at = (at + 1) & (table.shape[0] - 1)
    return NONE


@kernel()
def _drop(place, ids, streams, links, table, heads, vacant, vacancies):  # type: ignore[no-untyped-def]
    """Take a place out of the table and of its stream's chain; it is vacant then."""
    last = table.shape[0] - 1
    hole = _cell(ids[place], ids, table)
    table[hole] = NONE
    at = (hole + 1) & last
    while table[at] != NONE:  # whoever was pushed past the hole moves into it
        home = _home(ids[table[at]], table)
        if ((at - home) & last) >= ((at - hole) & last):
            table[hole], table[at] = table[at], NONE
            hole = at
        at = (at + 1) & last
    row, before, after = streams[place], links[place, 0], links[place, 1]
    if before == NONE:
        heads[row, 0] = after
    else:
        links[before, 1] = after
    if after == NONE:
        heads[row, 1] = before
    else:
        links[after, 0] = before
    heads[row, 2] -= 1
    ids[place] = NONE
    vacant[vacancies] = place
    return vacancies + 1


@kernel()
def enter_all(ids, table):  # type: ignore[no-untyped-def]
    """Fill an empty table with all places taken."""
    for place in range(ids.shape[0]):
        if ids[place] != NONE:
            _enter(place, ids, table)


@kernel()
def open_decisions(  # type: ignore[no-untyped-def]
    numbers, rows, played, contexts, most, ids, streams, arms, features, links, table, heads, vacant, vacancies
):
    """Let decisions (n,) of `rows` (n,) wait, the oldest of a stream making room beyond `most`; the vacancies left.

    There must be as many vacancies as decisions. A row named more than once opens its decisions in the order given.
    """
    for i in range(numbers.shape[0]):
        row = rows[i]
        if heads[row, 2] >= most:
            vacancies = _drop(heads[row, 0], ids, streams, links, table, heads, vacant, vacancies)
        vacancies -= 1
        place = vacant[vacancies]
        ids[place], streams[place], arms[place] = numbers[i], row, played[i]
        for j in range(features.shape[1]):
            features[place, j] = contexts[i, j]
        links[place, 0], links[place, 1] = heads[row, 1], NONE
        if heads[row, 1] == NONE:
            heads[row, 0] = place
        else:
            links[heads[row, 1], 1] = place
        heads[row, 1] = place
        heads[row, 2] += 1
        _enter(place, ids, table)
    return vacancies


@kernel()
def find_decisions(numbers, ids, table, marked, places):  # type: ignore[no-untyped-def]
    """The places (n,) of decisions (n,): FOUND, or UNKNOWN or TWICE and the first of them that is so."""
    found, at = FOUND, numbers.shape[0]
    for i in range(numbers.shape[0]):
        cell = _cell(numbers[i], ids, table) if numbers[i] >= 0 else NONE
        if cell == NONE:
            found, at = UNKNOWN, i
            break
        places[i] = table[cell]
        if marked[places[i]]:
            found, at = TWICE, i
            break
        marked[places[i]] = True
    for i in range(at):
        marked[places[i]] = False
    return found, at


@kernel()
def close_decisions(  # type: ignore[no-untyped-def]
    places, ids, streams, links, table, heads, vacant, vacancies, rounds, rewarded
):
    """Decisions that have had their reward: counted in `rewarded` (B, 2), with the round of it; the vacancies left."""
    for i in range(places.shape[0]):
        row = streams[places[i]]
        rewarded[row, 0] += 1
        rewarded[row, 1] = rounds[row]
        vacancies = _drop(places[i], ids, streams, links, table, heads, vacant, vacancies)
    return vacancies


@kernel()
def forget_streams(rows, ids, streams, links, table, heads, vacant, vacancies):  # type: ignore[no-untyped-def]
    """Let nothing of `rows` wait any more; the vacancies left."""
    for i in range(rows.shape[0]):
        while heads[rows[i], 2] > 0:
            vacancies = _drop(heads[rows[i], 0], ids, streams, links, table, heads, vacant, vacancies)
    return vacancies


@kernel()
def chains(rows, heads, links, places):  # type: ignore[no-untyped-def]
    """The places of everything that waits in `rows`, stream by stream, from the oldest to the newest."""
    at = 0
    for i in range(rows.shape[0]):
        place = heads[rows[i], 0]
        while place != NONE:
            places[at] = place
            place = links[place, 1]
            at += 1
