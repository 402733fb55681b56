local there = present('list')
if there == nil then
  return {WRONG_TYPE}
end
local writes = VERB == 'append' or VERB == 'prepend' or VERB == 'insert'
local values = arguments(FIRST + (VERB == 'insert' and 1 or 0))
if writes then
  if not there and not CREATE then
    return {0, 0}
  end
  local size = there and redis.call('LLEN', KEY) or 0
  if size + #values > ELEMENTS_MAX then
    return {TOO_LARGE}
  end
  local index = VERB == 'insert' and tonumber(ARGV[FIRST])
  if index and index < 0 then
    index = size + index
  end
  if index and (index < 0 or index > size) then
    return {OUT_OF_RANGE, size}
  end
  if #values == 0 then
    return {there and 1 or 0, size}
  end
  prepare(there)
  if VERB == 'prepend' or index == 0 then
    local back = {}
    for n = #values, 1, -1 do
      back[#back + 1] = values[n]
    end
    in_parts('LPUSH', back)
  elseif VERB == 'append' or index == size then
    in_parts('RPUSH', values)
  else
    -- LINSERT looks for a value: the one at the index stands aside for one that nothing else in the list is.
    local mark, moved = '\193', redis.call('LINDEX', KEY, index)
    redis.call('LSET', KEY, index, mark)
    for n = 1, #values do
      redis.call('LINSERT', KEY, 'BEFORE', mark, values[n])
    end
    redis.call('LSET', KEY, index + #values, moved)
  end
  settle()
  return {1, redis.call('LLEN', KEY)}
end
if not there then
  return {0}
elseif VERB == 'length' then
  return {1, redis.call('LLEN', KEY)}
elseif VERB == 'pop_front' or VERB == 'pop_back' then
  local value = redis.call(VERB == 'pop_front' and 'LPOP' or 'RPOP', KEY)
  return {1, value, redis.call('LLEN', KEY)}
end
local size = redis.call('LLEN', KEY)
local first, last = tonumber(values[1]), values[2] == '' and size or tonumber(values[2])
if first < 0 then
  first = math.max(0, size + first)
end
if last < 0 then
  last = size + last
end
last = math.min(last, size)
if last - first > ELEMENTS_MAX then
  return {TOO_LARGE}
end
return {1, last > first and redis.call('LRANGE', KEY, first, last - 1) or {}}
