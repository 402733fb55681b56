-- ARGV: by how much; the value that nothing counts as, in MessagePack; '1' to make it; TTL or ''; meta
-- Returns {1, version, now, old value or nil, new value}; {0} nothing is there; {-2} no number; {-3} out of range
if structure then
  return {WRONG_TYPE}
end
if not there and ARGV[3] ~= '1' then
  return {0, 0, now, false}
end
local value, why = add(old_value or ARGV[2], ARGV[1])
if not value then
  return {why}
end
return {1, change(value, ARGV[4], ARGV[5]), now, old_value, value}
