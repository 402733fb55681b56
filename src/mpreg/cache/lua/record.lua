-- What all verbs of a value share: it stands in front of each of them. Python's `record.py` reads the same bytes.
--
-- KEYS[1] is the key. A value is a string: a header of fixed size, so that a part of it is changed in place, then tags
-- and dependencies, then the value in MessagePack.
--   kind         'E' a value, 'T' nothing: it was deleted, or is being computed; the version is remembered for a while
--   version      higher with every write; the clock in it makes it so even after it was forgotten
--   created, expires, fresh_until   ms, 0: never      cost    ms
--   lease, lease_until              who computes the value, 0: nobody; until when nobody else does
--   uses, used_at                   counted by nodes, written now and then
-- A structure is a set, list, hash or zset under the same key, without any of this: where one is made, the version of
-- what was deleted before is forgotten.
local KEY = KEYS[1]
local HEADER = '>c1dddddddddI4'
local HEADER_BYTES = 77
local AT_EXPIRES, AT_LEASE, AT_USES = 17, 41, 57
local TOMBSTONE_MS = 3600000
local WRONG_TYPE, OUT_OF_RANGE, TOO_LARGE = -2, -3, -4

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)

-- The record as a table; nil if there is none; and whether a structure is there instead. `last`: read no further.
local function read(last)
  local data = redis.pcall('GETRANGE', KEY, 0, last or -1)
  if type(data) == 'table' then
    return nil, true
  end
  if #data < HEADER_BYTES then
    return nil, false
  end
  local r = {data = data}
  r.kind, r.version, r.created, r.expires, r.fresh, r.cost, r.lease, r.lease_until, r.uses, r.used_at, r.meta_bytes =
    struct.unpack(HEADER, data)
  if r.kind ~= 'E' and r.kind ~= 'T' then
    return nil, false
  end
  return r, false
end

local function meta_of(r)
  if not r or r.kind ~= 'E' or r.meta_bytes == 0 then
    return ''
  end
  return redis.call('GETRANGE', KEY, HEADER_BYTES, HEADER_BYTES + r.meta_bytes - 1)
end

local function value_of(r)
  return r.data:sub(HEADER_BYTES + r.meta_bytes + 1)
end

local function next_version(r)
  if r and r.version >= now_us then
    return r.version + 1
  end
  return now_us
end

-- `keep`: the TTL of the store's key stays as it is. Whoever waits for the value of a lease is told.
local function write(r, fields, meta, value, keep)
  local data = struct.pack(HEADER, fields.kind or 'E', fields.version, fields.created or now, fields.expires or 0,
    fields.fresh or 0, fields.cost or 0, fields.lease or 0, fields.lease_until or 0, fields.uses or 0,
    fields.used_at or 0, #meta) .. meta .. value
  if keep then
    redis.call('SET', KEY, data, 'KEEPTTL')
  elseif (fields.expires or 0) > 0 then
    redis.call('SET', KEY, data, 'PX', math.max(1, fields.expires - now))
  else
    redis.call('SET', KEY, data)
  end
  if r and r.lease > 0 and (fields.lease or 0) == 0 then
    redis.call('PUBLISH', 'mpreg:cache:ready:' .. KEY, '')
  end
end
