-- Several sets at one moment.
-- KEYS: the sets   ARGV: SUNION, SINTER or SDIFF; elements at most
-- Returns {whether the first is there, whether any is, members}; {-2} one is no set; {-4} too many to be told at once
local sets, first, any, missing = {}, 0, 0, false
for n, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind == 'set' then
    sets[#sets + 1] = key
    any, first = 1, n == 1 and 1 or first
    if redis.call('SCARD', key) > tonumber(ARGV[2]) then
      return {-4}
    end
  elseif kind == 'string' and redis.call('GETRANGE', key, 0, 0) == 'T' or kind == 'none' then
    missing = true
  else
    return {-2}
  end
end
if #sets == 0 or (first == 0 and ARGV[1] == 'SDIFF') or (missing and ARGV[1] == 'SINTER') then
  return {first, any, {}}
end
local found = redis.call(ARGV[1], unpack(sets))
if #found > tonumber(ARGV[2]) then
  return {-4}
end
return {first, any, found}
