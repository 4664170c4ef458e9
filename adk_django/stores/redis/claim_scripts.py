"""What the store of claims runs in Redis: one Lua script for each of its verbs.

A claim is a JSON object whose values are JSON themselves, kept as text: no number and no character of them is read or
written by Lua.
"""

from typing import Final

from adk_django.stores.redis.scripts import GATE, HEAD

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
    HEAD
    + GATE
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
    HEAD
    + GATE
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
    HEAD
    + GATE
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
    HEAD
    + GATE
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
    HEAD
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
    HEAD
    + _CLAIMS
    + """
local slot, outcome, state, holds, by, reason, attempt = unpack(ARGV)
local row, damaged, raw = read(slot)
if damaged then return {'damaged', slot} end
if not row then return {'none'} end
if attempt ~= NULL and attempt ~= row.attempt then return {'moved', slot, raw} end
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

FORGET_CLAIMS: Final = HEAD + GATE + "redis.call('DEL', CLAIMS) return {'ok'}"
