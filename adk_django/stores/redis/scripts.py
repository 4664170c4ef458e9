"""What the stores in Redis run there: one Lua script for each verb, so that a verb is all or nothing.

Every script is sent the same keys, all of one run and one hash tag: the lease, the frontier, the claims. Instants are
milliseconds of the server's own clock.
"""

from typing import Final

HEAD: Final = """
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
GATE: Final = """
local held = lease()
if held.fence ~= ARGV[1] or held.token == '' or not held.here then return lost(held) end
"""

ACQUIRE: Final = (
    HEAD
    + """
local holder, token, ttl, floor, tenant, run = unpack(ARGV)
local held, at = lease(), now()
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
    HEAD
    + _MINE
    + """
if not mine or not held.here then return lost(held) end
local until_ = later(now(), ARGV[3])
redis.call('HSET', LEASE, 'expires_at', until_)
return {'ok', until_, redis.call('HGET', LEASE, 'deaths')}
"""
)

RELEASE: Final = HEAD + _MINE + "if mine then redis.call('HSET', LEASE, 'token', '', 'holder', '') end return {'ok'}"

PROGRESSED: Final = HEAD + _MINE + "if mine then redis.call('HSET', LEASE, 'deaths', ARGV[3]) end return {'ok'}"

# A token that nobody has, and an expiry that has come.
REVOKE: Final = (
    HEAD
    + """
local by, token = unpack(ARGV)
local held, at = lease(), now()
if held.token == '' then return {'none'} end
local fence = later(held.fence, 1)
redis.call('HSET', LEASE, 'fence', fence, 'holder', by, 'token', token, 'acquired_at', at, 'expires_at', at,
  'incarnation', incarnation())
return {'ok', fence, at, redis.call('HGET', LEASE, 'deaths'), redis.call('HGET', LEASE, 'took_over')}
"""
)

HELD: Final = (
    HEAD
    + """
local held = lease()
if held.token == '' then return {'none'} end
local kept = redis.call('HMGET', LEASE, 'acquired_at', 'deaths', 'took_over')
return {'ok', held.fence, held.token, held.holder, kept[1], held.expires_at, kept[2], kept[3]}
"""
)

STANDS: Final = HEAD + GATE + "return {'ok'}"

STAMP: Final = (
    HEAD
    + """
local held = lease()
if tonumber(held.fence) < tonumber(ARGV[1]) then
  redis.call('HSET', LEASE, 'fence', ARGV[1], 'token', '', 'holder', '', 'incarnation', incarnation())
end
return {'ok'}
"""
)

PUT: Final = (
    HEAD
    + GATE
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
    HEAD
    + """
local found = redis.call('HMGET', FRONTIER, 'fence', 'turn', 'rank', 'digest', 'format', 'payload', 'created_at',
  'incarnation')
if not found[6] then return {'none'} end
return {'ok', found[1], found[2], found[3], found[4], found[5], found[6], found[7],
  found[8] == incarnation() and '1' or ''}
"""
)

FORGET_FRONTIER: Final = HEAD + GATE + "redis.call('DEL', FRONTIER) return {'ok'}"

# The transcript is a list; an element is the rolling digest, a space and the message. KEYS[4] is its generation.
APPEND: Final = (
    HEAD
    + GATE
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
