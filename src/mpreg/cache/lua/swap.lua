-- ARGV: 'x' only if nothing is there, 'c' only if it is the expected value; expected value; new value; TTL or ''; meta;
--   '1' if nothing counts as the expected value
-- Returns {1 or 0, version, now, old value or nil}; {-2} a structure
if structure then
  return {WRONG_TYPE}
end
local as_expected
if ARGV[1] == 'x' then
  as_expected = not there
elseif there then
  as_expected = old_value == ARGV[2]
else
  as_expected = ARGV[6] == '1'
end
if not as_expected then
  return {0, there and old.version or 0, now, old_value}
end
return {1, change(ARGV[3], ARGV[4], ARGV[5]), now, old_value}
