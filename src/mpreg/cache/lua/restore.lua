-- A structure from a backup, whole or not at all.   ARGV from 5: its type, 'r' to replace what is there, its items
-- Returns {1} done, {0} something is there
local there = redis.call('TYPE', KEY).ok
if there == 'string' then
  local r = read(HEADER_BYTES - 1)
  there = (r and r.kind == 'E') and there or 'none'
end
if there ~= 'none' and ARGV[FIRST + 1] ~= 'r' then
  return {0}
end
local kind, items = ARGV[FIRST], arguments(FIRST + 2)
if #items > ELEMENTS_MAX then
  return {TOO_LARGE}
end
redis.call('UNLINK', KEY)
if kind == 'zset' then
  for n = 1, #items, 2 do
    items[n], items[n + 1] = items[n + 1], items[n]
  end
end
in_parts(({set = 'SADD', list = 'RPUSH', hash = 'HSET', zset = 'ZADD'})[kind], items)
settle()
return {1}
