-- A map within maps is kept flat: `user NUL name` is a field of the hash. That `user` is a map is said by the field
-- `user NUL`, so an empty map is one too.
local NUL = '\0'
local there = present('hash')
if there == nil then
  return {WRONG_TYPE}
end

local function parent(path)
  return path:match('^(.*)%z[^%z]+$')
end

-- The nearest thing above that is no map, if there is one.
local function blocked(path)
  local above = parent(path)
  while above do
    if redis.call('HEXISTS', KEY, above .. NUL) == 1 then
      return false
    elseif redis.call('HEXISTS', KEY, above) == 1 then
      return true
    end
    above = parent(above)
  end
  return false
end

-- The maps above are there from now on.
local function open_above(path)
  local above = parent(path)
  while above and redis.call('HSETNX', KEY, above .. NUL, '') == 1 do
    above = parent(above)
  end
end

local function below(path)
  local prefix, found = path .. NUL, {}
  for _, field in ipairs(redis.call('HKEYS', KEY)) do
    if field:sub(1, #prefix) == prefix then
      found[#found + 1] = field
    end
  end
  return found
end

-- Whether there was something.
local function drop(path)
  if redis.call('HDEL', KEY, path) == 1 then
    return true
  elseif redis.call('HEXISTS', KEY, path .. NUL) == 1 then
    in_parts('HDEL', below(path))
    return true
  end
  return false
end

-- Top-level fields, a map within counting as one.
local function size()
  local n = 0
  for _, field in ipairs(redis.call('HKEYS', KEY)) do
    local at = field:find(NUL, 1, true)
    if not at or at == #field then
      n = n + 1
    end
  end
  return n
end

if VERB == 'set_field' or VERB == 'increment_field' then
  if not there and not CREATE then
    return {0, 0, 0}
  end
  if (there and redis.call('HLEN', KEY) or 0) + (#ARGV - FIRST + 1) / 3 > ELEMENTS_MAX then
    return {TOO_LARGE}
  end
  -- First all is checked, then all is written: {what, path, value}, what being 's' a value, 'm' an empty map, 'i' a sum.
  -- Paths of one request never lie within one another unless the outer one is replaced by a map first.
  local made, sums = {}, {}
  for n = FIRST, #ARGV, 3 do
    local what, path = ARGV[n], ARGV[n + 1]
    local above, inside = parent(path), false
    while above do
      inside = inside or made[above]
      above = parent(above)
    end
    if there and not inside and blocked(path) then
      return {WRONG_TYPE, path}
    end
    if what == 'm' then
      made[path] = true
    elseif what == 'i' then
      local is_map = there and redis.call('HEXISTS', KEY, path .. NUL) == 1
      local value, why = add(not is_map and there and redis.call('HGET', KEY, path) or '\0', ARGV[n + 2])
      if is_map or not value then
        return {is_map and WRONG_TYPE or why, path}
      end
      sums[path] = value
    end
  end
  prepare(there)
  local changed, value = 0, nil
  for n = FIRST, #ARGV, 3 do
    local what, path = ARGV[n], ARGV[n + 1]
    value = sums[path] or ARGV[n + 2]
    local was_there
    if what == 'm' then
      was_there = drop(path)
      redis.call('HSET', KEY, path .. NUL, '')
    else
      was_there = redis.call('HEXISTS', KEY, path) == 1
      if not was_there and redis.call('HEXISTS', KEY, path .. NUL) == 1 then
        was_there = drop(path)
      end
      redis.call('HSET', KEY, path, value)
    end
    if not was_there then
      changed = changed + 1
      open_above(path)
    end
  end
  settle()
  if VERB == 'increment_field' then
    return {1, value}
  end
  return {1, changed, size()}
end

if not there then
  return {0}
elseif VERB == 'size' then
  return {1, size()}
elseif VERB == 'remove_fields' then
  local changed = 0
  for n = FIRST, #ARGV do
    if drop(ARGV[n]) then
      changed = changed + 1
    end
  end
  settle()
  return {1, changed, size()}
elseif VERB == 'get_fields' then
  local found = {}
  for n = FIRST, #ARGV do
    local path = ARGV[n]
    local value = redis.call('HGET', KEY, path)
    if value then
      found[n - FIRST + 1] = {path, value}
    elseif redis.call('HEXISTS', KEY, path .. NUL) == 1 then
      local fields = below(path)
      if #fields > ELEMENTS_MAX then
        return {TOO_LARGE}
      end
      local flat = {}
      for _, field in ipairs(fields) do
        flat[#flat + 1], flat[#flat + 2] = field, redis.call('HGET', KEY, field)
      end
      found[n - FIRST + 1] = flat
    else
      found[n - FIRST + 1] = {}
    end
  end
  return {1, found}
end
if redis.call('HLEN', KEY) > ELEMENTS_MAX then
  return {TOO_LARGE}
end
return {1, redis.call('HGETALL', KEY)}
