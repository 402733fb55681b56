-- What time has changed, when nothing else happens to a queue.
-- ARGV: time. Returns {now, when to come again (0: never)}, or -1 if there is no such queue.
if not TYPE then
  return -1
end
settle()
finally()
return {now, counts[SOONEST]}
