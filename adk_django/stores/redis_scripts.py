"""What the stores in Redis run there: one Lua script for each verb, so that a verb is all or nothing.

Every script is sent the same keys, all of one run and one hash tag: the lease, the frontier, the claims. Instants are
milliseconds of the server's own clock. A claim is a JSON object whose values are JSON themselves, kept as text: no
number and no character of them is read or written by Lua.
"""

from typing import Final

_HEAD: Final = """
local LEASE, FRONTIER, CLAIMS = KEYS[1], KEYS[2], KEYS[3]

local function now()
  local time = redis.call('TIME')
  return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end

local function later(at, milliseconds)
  return string.format('%.0f', tonumber(at) + tonumber(milliseconds))
end

local function incarnation()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end

local function lease()
  local found = redis.call('HMGET', LEASE, 'fence', 'token', 'holder', 'expires_at', 'incarnation')
  local token = found[2] or ''
  return {fence = found[1] or '0', token = token, holder = found[3] or '', expires_at = found[4] or '',
    here = found[5] == incarnation()}
end

local function lost(held)
  return {'lost', held.fence, held.token ~= '' and held.holder or '', held.expires_at, held.here and '1' or ''}
end
"""

# Before every write under a fence. A lease of another incarnation is lost: what was written under it may be, too.
_GATE: Final = """
local held = lease()
if held.fence ~= ARGV[1] or held.token == '' or not held.here then return lost(held) end
"""

ACQUIRE: Final = (
    _HEAD
    + """
local holder, token, ttl, floor, tenant, run = unpack(ARGV)
local held, at = lease(), now()
if redis.call('HGET', LEASE, 'forgotten') then return {'forgotten'} end
local kept = redis.call('HMGET', LEASE, 'acquired_at', 'deaths', 'took_over')
if held.token == token then
  return {'ok', held.fence, kept[1], held.expires_at, kept[2], kept[3]}
end
local stands = held.token ~= ''
if stands and tonumber(at) < tonumber(held.expires_at) then
  return {'held', held.fence, held.holder, held.expires_at}
end
local fence = later(held.fence, 1)
if tonumber(fence) <= tonumber(floor) then return {'floor', fence} end
local deaths, took_over = kept[2] or '0', '0'
if stands then deaths, took_over = later(deaths, 1), '1' end
local until_ = later(at, ttl)
redis.call('HSET', LEASE, 'tenant', tenant, 'run', run, 'fence', fence, 'holder', holder, 'token', token,
  'acquired_at', at, 'expires_at', until_, 'deaths', deaths, 'took_over', took_over, 'incarnation', incarnation())
return {'ok', fence, at, until_, deaths, took_over}
"""
)

_MINE: Final = """
local held = lease()
local mine = held.token == ARGV[1] and held.token ~= '' and held.fence == ARGV[2]
"""

RENEW: Final = (
    _HEAD
    + _MINE
    + """
if not mine or not held.here then return lost(held) end
local until_ = later(now(), ARGV[3])
redis.call('HSET', LEASE, 'expires_at', until_)
return {'ok', until_, redis.call('HGET', LEASE, 'deaths')}
"""
)

RELEASE: Final = _HEAD + _MINE + "if mine then redis.call('HSET', LEASE, 'token', '', 'holder', '') end return {'ok'}"

PROGRESSED: Final = _HEAD + _MINE + "if mine then redis.call('HSET', LEASE, 'deaths', '0') end return {'ok'}"

HELD: Final = (
    _HEAD
    + """
local held = lease()
if held.token == '' then return {'none'} end
local kept = redis.call('HMGET', LEASE, 'acquired_at', 'deaths', 'took_over')
return {'ok', held.fence, held.token, held.holder, kept[1], held.expires_at, kept[2], kept[3]}
"""
)

STANDS: Final = _HEAD + _GATE + "return {'ok'}"

STAMP: Final = (
    _HEAD
    + """
local held = lease()
if tonumber(held.fence) < tonumber(ARGV[1]) then
  redis.call('HSET', LEASE, 'fence', ARGV[1], 'token', '', 'holder', '', 'incarnation', incarnation())
end
return {'ok'}
"""
)

PUT: Final = (
    _HEAD
    + _GATE
    + """
local fence, turn, rank, digest, format, payload = unpack(ARGV)
local old = redis.call('HMGET', FRONTIER, 'fence', 'turn', 'rank', 'digest')
if old[1] and old[1] == fence then
  local same = old[2] == turn and old[3] == rank
  if same and old[4] == digest then return {'ok'} end
  local behind = tonumber(turn) < tonumber(old[2]) or (turn == old[2] and tonumber(rank) <= tonumber(old[3]))
  if behind then return {'conflict'} end
end
redis.call('HSET', FRONTIER, 'fence', fence, 'turn', turn, 'rank', rank, 'digest', digest, 'format', format,
  'payload', payload, 'created_at', now(), 'incarnation', held.here and incarnation())
return {'ok'}
"""
)

LATEST: Final = (
    _HEAD
    + """
local found = redis.call('HMGET', FRONTIER, 'fence', 'turn', 'rank', 'digest', 'format', 'payload', 'created_at',
  'incarnation')
if not found[6] then return {'none'} end
return {'ok', found[1], found[2], found[3], found[4], found[5], found[6], found[7],
  found[8] == incarnation() and '1' or ''}
"""
)

FORGET_FRONTIER: Final = _HEAD + _GATE + "redis.call('DEL', FRONTIER) return {'ok'}"

FORGET_CLAIMS: Final = _HEAD + _GATE + "redis.call('DEL', CLAIMS) return {'ok'}"

# The transcript is a list; an element is the rolling digest, a space and the message. KEYS[4] is its generation.
APPEND: Final = (
    _HEAD
    + _GATE
    + """
local length, digest = tonumber(ARGV[2]), ARGV[3]
local there = ''
if length > 0 then
  there = string.match(redis.call('LINDEX', KEYS[4], length - 1) or '', '^%S*')
end
if there ~= digest then return {'unavailable'} end
if length == 0 then redis.call('DEL', KEYS[4]) else redis.call('LTRIM', KEYS[4], 0, length - 1) end
for index = 4, #ARGV do redis.call('RPUSH', KEYS[4], ARGV[index]) end
return {'ok'}
"""
)

# Claims. A field is a slot, or ``key`` and a key that a slot holds against every other.
_CLAIMS: Final = """
local NULL, IN_FLIGHT, NEVER_RAN = 'null', '"in_flight"', '"never_ran"'

local function read(slot)
  local raw = redis.call('HGET', CLAIMS, slot)
  if not raw then return nil end
  local well, claim = pcall(cjson.decode, raw)
  if not well or type(claim) ~= 'table' or not (claim.state and claim.token and claim.key) then return nil, slot end
  return claim, nil, raw
end

local function write(slot, claim)
  local raw = cjson.encode(claim)
  redis.call('HSET', CLAIMS, slot, raw)
  return raw
end

local function owner(key, slot)
  local found = redis.call('HGET', CLAIMS, 'key ' .. key)
  return found and found ~= slot and found or nil
end

local function hold(key, slot) redis.call('HSET', CLAIMS, 'key ' .. key, slot) end

local function free(key, slot)
  if redis.call('HGET', CLAIMS, 'key ' .. key) == slot then redis.call('HDEL', CLAIMS, 'key ' .. key) end
end
"""

BEGIN: Final = (
    _HEAD
    + _GATE
    + _CLAIMS
    + """
local fence, slot, limit, replaces, state, may_replace = unpack(ARGV, 1, 6)
local fresh = cjson.decode(ARGV[7])
local old, damaged, raw = read(slot)
if damaged then return {'damaged', slot} end
if old then
  if old.token == fresh.token and old.token ~= NULL then return {'ok', slot, raw} end
  local as_read = old.token == replaces and old.state == state and old.contested ~= 'true'
  local late = old.state == IN_FLIGHT and old.evidence ~= NULL
  if may_replace == '' or not as_read or late then return {'ok', slot, raw} end
end
local other = owner(fresh.key, slot)
if other then
  local _, broken, whole = read(other)
  if whole then return {'ok', other, whole} end
  return {'damaged', broken or other}
end
if old then free(old.key, slot) end
fresh.fence, fresh.begun_at = fence, now()
fresh.deadline_at = later(fresh.begun_at, limit)
if fresh.holder == '""' then fresh.holder = held.holder end
hold(fresh.key, slot)
return {'ok', slot, write(slot, fresh)}
"""
)

# A claim under its token that is gone was forgotten here, not given up: its outcome is a fact, and written.
RECORD: Final = (
    _HEAD
    + _GATE
    + _CLAIMS
    + """
local fence, slot, outcome, state, holds = unpack(ARGV, 1, 5)
local sent = cjson.decode(ARGV[6])
local row, damaged, raw = read(slot)
if damaged then return {'damaged', slot} end
if not row then
  if holds ~= '' and owner(sent.key, slot) then return {'conflict'} end
  sent.fence, sent.begun_at, sent.outcome, sent.state = fence, now(), outcome, state
  if holds ~= '' then hold(sent.key, slot) end
  return {'ok', slot, write(slot, sent)}
end
if row.token ~= sent.token then return {'conflict'} end
if row.state == IN_FLIGHT then
  row.outcome, row.state = outcome, state
  if holds == '' then free(row.key, slot) end
  return {'ok', slot, write(slot, row)}
end
if row.outcome == outcome then return {'ok', slot, raw} end
return {'conflict'}
"""
)

ABANDON: Final = (
    _HEAD
    + _GATE
    + _CLAIMS
    + """
local row, damaged = read(ARGV[2])
if damaged then return {'damaged', ARGV[2]} end
if row and row.token == ARGV[3] and row.token ~= NULL and row.state == IN_FLIGHT then
  free(row.key, ARGV[2])
  redis.call('HDEL', CLAIMS, ARGV[2])
end
return {'ok'}
"""
)

NOTE_ERROR: Final = (
    _HEAD
    + _GATE
    + _CLAIMS
    + """
local row, damaged = read(ARGV[2])
if damaged then return {'damaged', ARGV[2]} end
if row and row.token == ARGV[3] and row.token ~= NULL and row.state == IN_FLIGHT then
  row.error = ARGV[4]
  write(ARGV[2], row)
end
return {'ok'}
"""
)

EVIDENCE: Final = (
    _HEAD
    + _CLAIMS
    + """
local slot, token, outcome = unpack(ARGV)
local row, damaged, raw = read(slot)
if damaged then return {'damaged', slot} end
if not row then return {'none'} end
if row.token ~= token then return {'other'} end
if row.evidence ~= NULL or (row.outcome ~= NULL and row.settled_at == NULL) then return {'ok', slot, raw} end
row.evidence, row.evidence_at = outcome, now()
if row.state == NEVER_RAN then row.state, row.contested = IN_FLIGHT, 'true' end
return {'kept', slot, write(slot, row)}
"""
)

SETTLE: Final = (
    _HEAD
    + _CLAIMS
    + """
local slot, outcome, state, holds, by, reason = unpack(ARGV)
local row, damaged, raw = read(slot)
if damaged then return {'damaged', slot} end
if not row then return {'none'} end
if row.state ~= IN_FLIGHT then
  if row.settled_at ~= NULL and row.outcome == outcome then return {'ok', slot, raw} end
  return {'before', slot, raw}
end
local at = now()
if outcome == NULL then
  if row.evidence ~= NULL and row.contested ~= 'true' then return {'late', slot, raw} end
  if row.deadline_at ~= NULL and tonumber(at) < tonumber(row.deadline_at) then return {'early', slot, raw} end
end
row.outcome, row.state, row.contested = outcome, state, 'false'
row.settled_at, row.settled_by, row.reason = at, by, reason
if holds == '' then free(row.key, slot) end
return {'ok', slot, write(slot, row)}
"""
)
