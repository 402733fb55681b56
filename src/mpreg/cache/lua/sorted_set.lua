local there = present('zset')
if there == nil then
  return {WRONG_TYPE}
end
local values = arguments(FIRST)
if VERB == 'add_scored' then
  if not there and not CREATE then
    return {0, 0, 0}
  end
  local size = there and redis.call('ZCARD', KEY) or 0
  if size + #values / 2 > ELEMENTS_MAX then
    return {TOO_LARGE}
  end
  if #values == 0 then
    return {there and 1 or 0, 0, size}
  end
  prepare(there)
  local changed = 0
  for n = 1, #values, 4000 do
    changed = changed + redis.call('ZADD', KEY, 'CH', unpack(values, n, math.min(n + 3999, #values)))
  end
  settle()
  return {1, changed, redis.call('ZCARD', KEY)}
end
if not there then
  return {0}
elseif VERB == 'remove' then
  local changed = in_parts('ZREM', values)
  settle()
  return {1, changed, redis.call('ZCARD', KEY)}
elseif VERB == 'size' then
  return {1, redis.call('ZCARD', KEY)}
elseif VERB == 'get_score' then
  return {1, ask('ZMSCORE', values)}
elseif VERB == 'get_top' then
  return {1, redis.call('ZRANGE', KEY, 0, values[1] - 1, 'REV', 'WITHSCORES')}
elseif VERB == 'get_bottom' then
  return {1, redis.call('ZRANGE', KEY, 0, values[1] - 1, 'WITHSCORES')}
end
return {1, redis.call('ZRANGE', KEY, values[1], values[2], 'BYSCORE', 'LIMIT', 0, values[3], 'WITHSCORES')}
