-- Gives a key an end, if it has none and is of the type that was declared.
-- KEYS[1]; ARGV: the declared type, milliseconds to live.
local left = redis.call('PTTL', KEYS[1])
if left == -2 then
  return 'gone'
elseif left ~= -1 then
  return 'kept'
elseif redis.call('TYPE', KEYS[1]).ok ~= ARGV[1] then
  return 'other_type'
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'fixed'
