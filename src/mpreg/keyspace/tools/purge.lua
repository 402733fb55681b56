-- Deletes a key if it is still as it was when it was chosen.
-- KEYS[1]; ARGV: its type, its expiry in ms since 1970 or -1, the SHA-1 of its payload.
local key = KEYS[1]
local kind = redis.call('TYPE', key).ok
if kind == 'none' then
  return 'gone'
end
local at = redis.pcall('PEXPIRETIME', key)
if type(at) ~= 'number' then
  -- A server without the command: to the millisecond it can't be known, so leave the key if it may have been renewed.
  at = redis.call('PTTL', key)
  if at >= 0 then
    local now = redis.call('TIME')
    at = at + now[1] * 1000 + math.floor(now[2] / 1000)
    if math.abs(at - ARGV[2]) <= 2 then
      at = tonumber(ARGV[2])
    end
  end
end
if kind ~= ARGV[1] or at ~= tonumber(ARGV[2]) or redis.sha1hex(redis.call('DUMP', key)) ~= ARGV[3] then
  return 'changed'
end
redis.call('UNLINK', key)
return 'deleted'
