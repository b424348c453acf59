--- history
-- Note how a hold of this lock ended, in the history beside the index.
local function note_end(how, known, more)
  if INDEX and HISTORY > 0 then
    local key = string.gsub(INDEX, ':index$', '') .. ':history'
    redis.pcall('XADD', key, entry(NAME, how, known, more))
  end
end

