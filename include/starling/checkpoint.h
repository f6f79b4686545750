#pragma once

// Checkpoints of a program's own state, without a Trainer, and the parts that Trainer::save_parts() fills.

#include "starling/method/saved_state.h"
#include "starling/record/checkpoint_file.h"
#include "starling/record/checkpoint_folder.h"
#include "starling/record/checkpoint_run.h"
#include "starling/record/checkpoint_writer.h"
