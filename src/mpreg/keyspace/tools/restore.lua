-- Makes one key again, unless that would undo something.
-- KEYS[1]; ARGV: expiry in ms since 1970 or -1; "keep" or "replace" for a key that exists; the payload.
local key, at = KEYS[1], tonumber(ARGV[1])
if at >= 0 then
  local now = redis.call('TIME')
  if at <= now[1] * 1000 + now[2] / 1000 then
    return 'expired'
  end
end
local left = redis.call('PTTL', key)
if left ~= -2 then
  local as_long = (left == -1 and at == -1) or redis.pcall('PEXPIRETIME', key) == at
  if as_long and redis.call('DUMP', key) == ARGV[3] then
    return 'same'
  end
  if ARGV[2] ~= 'replace' then
    return 'exists'
  end
end
local command = {'RESTORE', key, at >= 0 and ARGV[1] or '0', ARGV[3]}
if at >= 0 then
  command[#command + 1] = 'ABSTTL'
end
if left ~= -2 then
  command[#command + 1] = 'REPLACE'
end
redis.call(unpack(command))
return 'restored'
