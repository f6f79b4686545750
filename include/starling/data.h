#pragma once

// Data sets by name, how they are fetched, texts, and how samples are split between ranks.

#include "starling/data/data_split.h"
#include "starling/data/dataset.h"
#include "starling/data/fetch.h"
#include "starling/data/partition.h"
#include "starling/data/registry.h"
#include "starling/data/shard.h"
#include "starling/data/text.h"
