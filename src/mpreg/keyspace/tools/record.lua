-- One key as it is at one moment: its type, expiry, size and value can't belong to different writes.
-- KEYS[1]; ARGV: "idle", "freq" or "" (how it was used); "dump", "digest" or "" (its value);
-- the most bytes of memory that a value may have to be dumped.
local key = KEYS[1]
local used = false
if ARGV[1] == 'idle' then
  used = redis.call('OBJECT', 'IDLETIME', key) -- before anything below uses it
elseif ARGV[1] == 'freq' then
  used = redis.call('OBJECT', 'FREQ', key)
end
local kind = redis.call('TYPE', key).ok
if kind == 'none' then
  return false
end
local at = redis.pcall('PEXPIRETIME', key)
if type(at) ~= 'number' then -- a server without the command
  at = redis.call('PTTL', key)
  if at >= 0 then
    local now = redis.call('TIME')
    at = at + now[1] * 1000 + math.floor(now[2] / 1000)
  end
end
local size = redis.pcall('MEMORY', 'USAGE', key)
if type(size) ~= 'number' then -- not permitted
  size = -1
end
local value = false
if ARGV[2] ~= '' and size <= tonumber(ARGV[3]) then
  value = redis.call('DUMP', key)
  if ARGV[2] == 'digest' then
    value = redis.sha1hex(value)
  end
end
return {kind, at, size, used, value, redis.call('PTTL', key)}
