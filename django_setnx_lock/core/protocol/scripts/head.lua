-- Of all scripts of one lock. The other keys begin as META does.
local NAME, META, INDEX = KEYS[1], KEYS[2], KEYS[3]
local BESIDE, token, time = string.sub(META, 1, -5), ARGV[1]
