local there = present('set')
if there == nil then
  return {WRONG_TYPE}
end
local values = arguments(FIRST)
if VERB == 'add' then
  if not there and not CREATE then
    return {0, 0, 0}
  end
  local size = there and redis.call('SCARD', KEY) or 0
  if size + #values > ELEMENTS_MAX then
    return {TOO_LARGE}
  end
  if #values == 0 then
    return {there and 1 or 0, 0, size}
  end
  prepare(there)
  local changed = in_parts('SADD', values)
  settle()
  return {1, changed, redis.call('SCARD', KEY)}
end
if not there then
  return {0}
elseif VERB == 'remove' then
  local changed = in_parts('SREM', values)
  settle()
  return {1, changed, redis.call('SCARD', KEY)}
elseif VERB == 'contains' then
  return {1, ask('SMISMEMBER', values)}
elseif VERB == 'size' then
  return {1, redis.call('SCARD', KEY)}
end
if redis.call('SCARD', KEY) > ELEMENTS_MAX then
  return {TOO_LARGE}
end
return {1, redis.call('SMEMBERS', KEY)}
